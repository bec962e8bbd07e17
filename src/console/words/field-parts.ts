// Fields that hold a list, and the control plane's errors about a part of it. Pure.

/** "a, b" as a list without empty parts. */
export const partsOf = (text: string, between = ","): string[] =>
  text.split(between).flatMap((part) => (part.trim() === "" ? [] : [part.trim()]));

/** Networks, separated by commas or blanks: an address has neither. */
export const networksIn = (text: string): string[] => text.split(/[\s,]+/).filter((part) => part !== "");

/** Whether an error is about the field, or about a part of it: `subnets.0`. */
export const isAbout = (key: string, field: string): boolean => key === field || key.startsWith(`${field}.`);

/**
 * The sentences about a field. One about a part of it begins with that part: for a list, the item of `parts`, which are the
 * items as they were sent; for an object, the name of its field.
 */
export function sentencesOf(
  errors: Readonly<Record<string, readonly string[]>> | undefined,
  field: string,
  parts: readonly string[] = [],
): string[] {
  return Object.entries(errors ?? {}).flatMap(([key, sentences]) => {
    if (!isAbout(key, field)) return [];
    const rest = key.slice(field.length + 1);
    const part = /^\d/.test(rest) ? parts[Number(rest)] : rest || undefined;
    return sentences.map((sentence) => (part === undefined ? sentence : `${part}: ${sentence}`));
  });
}
