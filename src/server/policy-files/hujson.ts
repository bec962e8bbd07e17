// HuJSON, the format of Tailscale's policies, as JSON of the same lines and columns: comments, trailing commas and tabs
// become spaces.

/** Does not check the JSON. */
export function plainJson(text: string): string {
  const out = text.split("");
  /** The index of a comma that nothing but blanks and comments have followed so far: before a bracket it is a trailing one. -1: none. */
  let comma = -1;
  for (let at = 0; at < text.length; at++) {
    const char = text[at] ?? "";
    if (char === '"') {
      at = endOfString(text, at);
      comma = -1;
    } else if (text.startsWith("//", at) || text.startsWith("/*", at)) {
      at = blankComment(out, text, at);
    } else if (char === ",") comma = at;
    else if (char === "]" || char === "}") {
      if (comma >= 0) out[comma] = " ";
      comma = -1;
    } else if (char === "\t" || char === "\r") out[at] = " ";
    else if (!/\s/.test(char)) comma = -1;
  }
  return out.join("");
}

/** The index of the closing quote. */
function endOfString(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at++) {
    if (text[at] === "\\") at++;
    else if (text[at] === '"' || text[at] === "\n") return at;
  }
  return text.length;
}

/** Replaces a comment by spaces and keeps its line ends. Returns the index of its last character. */
function blankComment(out: string[], text: string, start: number): number {
  const isLine = text.startsWith("//", start);
  const closing = isLine ? "\n" : "*/";
  const found = text.indexOf(closing, start + 2);
  // The line end after `//` stays; the closing mark of a block belongs to the comment.
  const after = isLine ? found : found + closing.length;
  const end = found === -1 ? text.length : after;
  for (let at = start; at < end; at++) if (text[at] !== "\n") out[at] = " ";
  return end - 1;
}
