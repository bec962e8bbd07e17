// The texts that the hash of an event may cover, for the server and for browsers, which verify the chain themselves.

/**
 * `text`: the JSON of an event. First the text itself. Then, if it holds U+FFFD, what earlier versions may have hashed: the JSON
 * escape of a lone surrogate, for which the database stored U+FFFD. If one of these gives the hash, the event is unchanged.
 */
export function* hashedTexts(text: string): Generator<string, void> {
  yield text;
  if (!text.includes("\ufffd")) return;
  for (let code = 0xd800; code < 0xe000; code++) yield text.replaceAll("\ufffd", `\\u${code.toString(16)}`);
}
