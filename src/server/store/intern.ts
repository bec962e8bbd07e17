// Interns strings that thousands of records share, such as an engine's version. This saves memory, and check-ins get
// faster because their data stays in the processor's caches.

/** Strings come from requests, so their number needs a bound. */
const maxStrings = 1000;

/** Returns the first equal string that it was called with. */
export function makeInterner(): (text: string) => string {
  const known = new Map<string, string>();
  return (text) => {
    const first = known.get(text);
    if (first !== undefined) return first;
    if (known.size >= maxStrings) known.clear();
    known.set(text, text);
    return text;
  };
}
