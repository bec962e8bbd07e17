// Words at the beginning of a title or a sentence.

/** "tunnels stay dead" becomes "Tunnels stay dead". */
export const capitalized = (words: string): string => words.charAt(0).toUpperCase() + words.slice(1);
