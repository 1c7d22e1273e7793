// What the product did with its bindings, in order, so that a test can count it.

const entries = [];
const SUBJECT_MAX = 200;

export function begin(operation, at) {
  const subject = operation.subject?.slice(0, SUBJECT_MAX);
  const entry = { seq: entries.length, at, ...operation, subject };
  entries.push(entry);
  return entry;
}

export const length = () => entries.length;
export const since = (seq) => entries.slice(seq);
