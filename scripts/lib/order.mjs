// After wasm-opt: names the functions of the module (build/index_bg.wasm) by numbers, in an order in
// which like ones stand together, since compression finds a likeness only within 32 KiB. wasm-opt
// then sorts them by name.
//
// Two functions are the more alike, the more of their sequences of five bytes they share. That is
// estimated by the smallest of each of many hashes of these (MinHash). One starts anywhere, and goes
// on to the function that is most like the last few; where none is, to the next one that is left.

import { readFileSync, writeFileSync } from "node:fs";
import { SECTION, counted, moduleOf, number, reader, sections, sized, skipImported } from "./wasm.mjs";

const MODULE = "build/index_bg.wasm";
const SEQUENCE = 5;
const HASHES = 256;
const FADING = 0.85;
const ALIKE = 0.05 * HASHES;
const NAMES_OF_FUNCTIONS = 1;

function bodies(code) {
  const read = reader(code);
  return Array.from({ length: read.number() }, () => read.take(read.number()));
}

function importedFunctions(body) {
  const read = reader(body);
  const entry = () => {
    read.name();
    read.name();
    return skipImported(read);
  };
  return Array.from({ length: read.number() }, entry).filter(Boolean).length;
}

function signature(body) {
  const smallest = new Uint32Array(HASHES).fill(0xffffffff);
  for (let at = 0; at + SEQUENCE <= body.length; at += 1) {
    let hash = 2166136261;
    for (let i = at; i < at + SEQUENCE; i += 1) hash = Math.imul(hash ^ body[i], 16777619);
    for (let i = 0; i < HASHES; i += 1) {
      let mixed = Math.imul(hash ^ Math.imul(i, 0x9e3779b1), 0x85ebca6b);
      mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35) >>> 0;
      if (mixed < smallest[i]) smallest[i] = mixed;
    }
  }
  return smallest;
}

function likeness(left, right) {
  let same = 0;
  for (let i = 0; i < HASHES; i += 1) if (left[i] === right[i]) same += 1;
  return same;
}

function order(signatures) {
  const left = new Set(signatures.keys());
  const alike = new Float64Array(signatures.length);
  const ordered = [];
  let next = 0;
  while (next !== undefined) {
    left.delete(next);
    ordered.push(next);
    const latest = signatures[next];
    let most = ALIKE;
    next = left.values().next().value;
    for (const other of left) {
      alike[other] = alike[other] * FADING + likeness(latest, signatures[other]);
      if (alike[other] > most) [most, next] = [alike[other], other];
    }
  }
  return ordered;
}

const parts = sections(readFileSync(MODULE));
const bodyOf = (wanted) => parts.find(({ kind }) => kind === wanted).body;
const first = importedFunctions(bodyOf(SECTION.imports));
const place = new Map(order(bodies(bodyOf(SECTION.code)).map(signature)).map((at, i) => [at, i]));
const names = [...place].sort(([a], [b]) => a - b).map(([at, i]) =>
  Buffer.concat([number(first + at), sized(String(i).padStart(6, "0"))]),
);
const section = Buffer.concat([
  sized("name"),
  Buffer.from([NAMES_OF_FUNCTIONS]),
  sized(counted(names)),
]);
writeFileSync(MODULE, moduleOf([...parts, { kind: SECTION.custom, body: section }]));
