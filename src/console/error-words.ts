// Sentences of the control plane with the words of the pages: a node is a machine there. Names within texts. Pure.

/** Names stay: a group may be called node, and a side of a rule node:db-1. */
const nodeWord =
  /\b(an?|the|this|these|such|no|another|other|every|many|single|ephemeral|registered) node(s?)\b(?!:)/gi;

export const inPageWords = (sentence: string): string => sentence.replaceAll(nodeWord, "$1 machine$2");

/** Each second part stood between backticks: a command. */
export const commandsIn = (sentence: string): string[] => sentence.split(/`([^`]+)`/);

const turns = /[\u202a-\u202e\u2066-\u2069]/g;

/** For texts without markup: a name in them cannot turn its neighbours around. */
export const unturned = (text: string): string => text.replaceAll(turns, "");
