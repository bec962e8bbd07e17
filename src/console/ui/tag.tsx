// Short words with a ground: groups and ports, the state of an object in its title, filters with their counts.

import type { ComponentChildren } from "preact";
import { Sign } from "./icon.tsx";
import type { SignName } from "./drawings.ts";

/** A group. `isAll`: everything, or a role, which is no group. `isPort`: a port, in the font of what is typed. */
export const Tag = ({ text, isAll, isPort }: { text: string; isAll?: boolean; isPort?: boolean }) => (
  <bdi class={`tag${isAll === true ? " all" : ""}${isPort === true ? " port" : ""}`}>{text}</bdi>
);

type PillProps = {
  sign?: SignName | undefined;
  kind?: "good" | "warn" | "bad" | "accent" | undefined;
  children: ComponentChildren;
};

/** The state of the object whose name stands before it. */
export const Pill = ({ sign, kind, children }: PillProps) => (
  <span class={`pill ${kind ?? ""}`}>
    {sign === undefined ? null : <Sign name={sign} />}
    {children}
  </span>
);

type ChipProps = {
  sign?: SignName | undefined;
  words: string;
  count?: number | undefined;
  isOn: boolean;
  /** Chips are links: the address has what is filtered. */
  href: string;
};

/** A filter with the number of what it leaves. */
export const Chip = ({ sign, words, count, isOn, href }: ChipProps) => (
  <a class="chip" href={href} aria-current={isOn ? "true" : undefined}>
    {sign === undefined ? null : <Sign name={sign} />}
    {words} {count === undefined ? null : <b>{count}</b>}
  </a>
);

/** How many; in red, unless `isSoft`: then no administrator is needed at once. */
export const Count = ({ count, words, isSoft }: { count: number; words: string; isSoft?: boolean }) => (
  <span class={isSoft === true ? "count soft" : "count"} title={`${count} ${words}`}>
    {count > 99 ? "99+" : count}
    <span class="unseen"> {words}</span>
  </span>
);
