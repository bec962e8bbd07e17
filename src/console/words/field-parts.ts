// Fields that hold a list, and the control plane's errors about a part of it. Pure.

/** "a, b" as a list without empty parts. */
export const partsOf = (text: string, between = ","): string[] =>
  text.split(between).flatMap((part) => (part.trim() === "" ? [] : [part.trim()]));

/** Networks, separated by commas or blanks: an address has neither. */
export const networksIn = (text: string): string[] => text.split(/[\s,]+/).filter((part) => part !== "");

/** Whether an error is about the field, or about a part of it: `subnets.0`. */
export const isAbout = (key: string, field: string): boolean => key === field || key.startsWith(`${field}.`);

/** The sentences about a field. Those about a part begin with it. `parts`: as they were sent. */
export function sentencesOf(
  errors: Readonly<Record<string, readonly string[]>> | undefined,
  field: string,
  parts: readonly string[] = [],
): string[] {
  return Object.entries(errors ?? {}).flatMap(([key, sentences]) => {
    if (!isAbout(key, field)) return [];
    const part = key === field ? undefined : parts[Number(key.slice(field.length + 1))];
    return sentences.map((sentence) => (part === undefined ? sentence : `${part}: ${sentence}`));
  });
}
