// WebAssembly modules as bytes: sections, and the numbers and names within them.

export const SECTION = { custom: 0, imports: 2, exports: 7, code: 10 };

// Reads bytes from the start on.
export function reader(bytes) {
  let at = 0;
  const take = (length) => bytes.subarray(at, (at += length));
  const byte = () => bytes[at++];
  const number = () => {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const next = byte();
      value += (next & 127) * scale;
      if (next < 128) return value;
    }
  };
  const name = () => take(number()).toString();
  // What `read` reads, as bytes.
  const span = (read) => {
    const begin = at;
    read();
    return bytes.subarray(begin, at);
  };
  return { take, byte, number, name, span, more: () => at < bytes.length };
}

export function number(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value & 127) | 128);
  return Buffer.from([...bytes, value]);
}

// Bytes, or a name, behind their length.
export function sized(bytes) {
  return Buffer.concat([number(Buffer.byteLength(bytes)), Buffer.from(bytes)]);
}

// Entries behind their count.
export function counted(entries) {
  return Buffer.concat([number(entries.length), ...entries]);
}

// The sections of a module, each as its kind and its body.
export function sections(module) {
  const read = reader(module);
  read.take(MAGIC.length);
  const found = [];
  while (read.more()) found.push({ kind: read.byte(), body: read.take(read.number()) });
  return found;
}

export function moduleOf(sections) {
  const parts = sections.map(({ kind, body }) => Buffer.concat([Buffer.from([kind]), sized(body)]));
  return Buffer.concat([MAGIC, ...parts]);
}

// Passes over what stands behind an import's name; says whether it is a function.
export function skipImported(read) {
  const limits = () => {
    const flags = read.byte();
    read.number();
    if (flags & 1) read.number();
  };
  const kind = read.byte();
  if (kind === 1 || kind === 3 || kind === 4) read.byte();
  if (kind === 1 || kind === 2) limits();
  else if (kind === 3) read.byte();
  else read.number();
  return kind === 0;
}

const MAGIC = Buffer.from([0, 97, 115, 109, 1, 0, 0, 0]);
