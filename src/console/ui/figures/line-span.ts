// A bar of the time line (time-line.tsx).

/** `kind`: how it is drawn; what is `planned` does not exist yet. Times are in ms since 1970. */
export type LineSpan = {
  key: string;
  kind: "active" | "former" | "next" | "planned";
  from: number;
  to: number;
  words: string;
};
