// The texts that the hash of an event may cover, for the server and for browsers, which verify the chain themselves.

/**
 * The text itself. Earlier versions hashed a lone surrogate, for which the database stored U+FFFD: where one of the others gives
 * the hash, that proves what the event was.
 */
export function* hashedTexts(text: string): Generator<string, void> {
  yield text;
  if (!text.includes("\ufffd")) return;
  for (let code = 0xd800; code < 0xe000; code++) yield text.replaceAll("\ufffd", `\\u${code.toString(16)}`);
}
