// Texts of others and of the control plane, where pages show them without markup. Pure.

/** Each second part stood between backticks: a command. */
export const commandsIn = (sentence: string): string[] => sentence.split(/`([^`]+)`/);

const turns = /[\u202a-\u202e\u2066-\u2069]/g;

/** For texts without markup: a name in them cannot turn its neighbours around. */
export const unturned = (text: string): string => text.replaceAll(turns, "");
