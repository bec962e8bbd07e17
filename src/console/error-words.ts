// Sentences of the control plane with the words of the pages: a node is a machine there. Pure.

/** Names stay: a group may be called node, and a side of a rule node:db-1. */
const nodeWord =
  /\b(an?|the|this|these|such|no|another|other|every|many|single|ephemeral|registered) node(s?)\b(?!:)/gi;

export const inPageWords = (sentence: string): string => sentence.replaceAll(nodeWord, "$1 machine$2");
