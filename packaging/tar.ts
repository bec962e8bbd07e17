// A tar archive (POSIX ustar). The same input gives the same bytes.

/** Without content it is a directory. `owner`: user and group, 0 by default. */
export type TarEntry = { path: string; content?: Uint8Array; mode: number; owner?: number };

export function tarOf(entries: readonly TarEntry[], timeS: number): Uint8Array<ArrayBuffer> {
  const parts = entries.flatMap((entry) => {
    const size = entry.content?.length ?? 0;
    const padding = Buffer.alloc((512 - (size % 512)) % 512);
    return [headerOf(entry, size, timeS), ...(entry.content === undefined ? [] : [entry.content, padding])];
  });
  return new Uint8Array(Buffer.concat([...parts, Buffer.alloc(1024)]));
}

function headerOf({ path, content, mode, owner = 0 }: TarEntry, size: number, timeS: number): Buffer {
  if (Buffer.byteLength(path) > 99) throw new Error(`Cannot pack ${path}: the path is too long`);
  const header = Buffer.alloc(512);
  const octal = (value: number, at: number, length: number) =>
    header.write(`${value.toString(8).padStart(length - 1, "0")}\0`, at, length);
  header.write(content === undefined ? `${path}/` : path, 0, 100);
  octal(mode, 100, 8);
  octal(owner, 108, 8);
  octal(owner, 116, 8);
  octal(size, 124, 12);
  octal(timeS, 136, 12);
  header.write("        ", 148, 8);
  header.write(content === undefined ? "5" : "0", 156, 1);
  header.write("ustar\x0000", 257, 8);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, 8);
  return header;
}
