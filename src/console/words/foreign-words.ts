// Texts of others and of the control plane, where pages show them without markup. Pure.

/** The parts of a sentence: each second one, from index 1, stood between backticks and is a command. */
export const commandsIn = (sentence: string): string[] => sentence.split(/`([^`]+)`/);

/** Unicode characters that change the direction of writing. */
const turns = /[\u202a-\u202e\u2066-\u2069]/g;

/** For texts without markup: a name in them cannot turn its neighbours around. */
export const unturned = (text: string): string => text.replaceAll(turns, "");
