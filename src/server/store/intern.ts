// Texts that thousands of records have in common, such as the version of an engine: kept once, which saves memory, and
// time too, since what is looked at for every check-in stays in the processor's caches.

/** They come from outside, so that there must be a bound. */
const most = 1000;

/** Gives for each text the one that was given before for the same. */
export function makeTexts(): (text: string) => string {
  const known = new Map<string, string>();
  return (text) => {
    const one = known.get(text);
    if (one !== undefined) return one;
    if (known.size >= most) known.clear();
    known.set(text, text);
    return text;
  };
}
