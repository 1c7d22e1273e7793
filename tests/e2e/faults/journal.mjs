// What the product did with its bindings, in order, so that a test can count it.

const entries = [];

export const SUBJECT_MAX = 200;

export function begin(operation, at) {
  const entry = { seq: entries.length, at, ...operation, subject: operation.subject?.slice(0, SUBJECT_MAX) };
  entries.push(entry);
  return entry;
}

export const length = () => entries.length;
export const since = (seq) => entries.slice(seq);
