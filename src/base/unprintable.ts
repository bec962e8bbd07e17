// Characters that no printed line may hold. Logs, schemas and browsers share this file, so it imports nothing.

/**
 * Control characters, which steer a terminal, and those that change the direction of writing: they can show a text in
 * another order than it has.
 */
export const unprintable =
  // oxlint-disable-next-line no-control-regex
  /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/;

const unprintables = new RegExp(`${unprintable.source}+`, "g");

/** Replaces them by spaces, so that foreign text cannot forge a second line. The result is well-formed. */
export function oneLine(text: string): string {
  return text.toWellFormed().replace(unprintables, " ");
}
