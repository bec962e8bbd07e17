// The marked block in a hosts file (hosts(5)): finds it, puts it in and takes it out. Everything outside the block stays
// byte for byte: texts are Latin-1, so that each byte is one character. Pure.

import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";

const begin = `# BEGIN ${brand.id} names: written by \`${brand.executable} names\`, changes in this block are lost`;
/** The file did not end with a line feed, so one stands before the block. It is removed with the block. */
const beginAfterFeed = `${begin} (after an added line feed)`;
const end = `# END ${brand.id} names`;

type SplitHosts = {
  /** The file without the block. */
  rest: string;
  /** The lines between the marks; undefined without a block. */
  block: readonly string[] | undefined;
};

/** Whether the file has the block, or a part of it. */
export function hasMarks(text: string): boolean {
  return [begin, end].some((mark) => text.includes(mark));
}

/** Throws if a mark is missing: then it is not certain which lines are ours. */
export function splitHosts(text: string): SplitHosts {
  const rest: string[] = [];
  let block: string[] | undefined;
  let isInside = false;
  /** The block has the mark beginAfterFeed. */
  let isAfterFeed = false;
  /** The last line is the mark at the end of the block. */
  let endsWithBlock = false;
  for (const line of text.match(/[^\n]*\n|[^\n]+$/g) ?? []) {
    const plain = line.replace(/\r?\n$/, "");
    const isBegin = plain === begin || plain === beginAfterFeed;
    endsWithBlock = plain === end;
    if ((isBegin && isInside) || (endsWithBlock && !isInside)) throw damaged();
    if (isBegin) {
      isInside = true;
      isAfterFeed = plain === beginAfterFeed;
      block ??= [];
    } else if (endsWithBlock) isInside = false;
    else if (isInside) block?.push(plain);
    else rest.push(line);
  }
  if (isInside) throw damaged();
  const outside = rest.join("");
  // If another program has added lines below the block, the line feed before it is needed.
  return { rest: isAfterFeed && endsWithBlock ? outside.replace(/\n$/, "") : outside, block };
}

/** The file with these lines in the block at its end; without lines, without a block. */
export function withBlock(text: string, lines: readonly string[]): string {
  const { rest } = splitHosts(text);
  if (lines.length === 0) return rest;
  const needsFeed = rest !== "" && !rest.endsWith("\n");
  return `${rest}${needsFeed ? `\n${beginAfterFeed}` : begin}\n${lines.join("\n")}\n${end}\n`;
}

/** The names in lines of a hosts file, in lower case. */
export function namesIn(text: string): Set<string> {
  const names = new Set<string>();
  for (const line of text.split("\n")) {
    const [, ...words] = line.replace(/#.*/, "").trim().toLowerCase().split(/\s+/);
    for (const word of words) names.add(word);
  }
  return names;
}

function damaged(): AppError {
  return new AppError(
    "failed",
    "The marks of the names' block do not match: one of them was removed or copied",
    {
      hint: `Remove the lines "# BEGIN ${brand.id} names…" and "# END ${brand.id} names" by hand, with the names between them.`,
    },
  );
}
