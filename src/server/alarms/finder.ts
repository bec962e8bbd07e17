// What the finders of causes have in common that are not about reachability.

import type { Reader } from "../store/database.ts";
import type { Warning } from "../../api/servers.ts";
import type { Ruled } from "./alarm-rules.ts";
import type { Cause } from "./open-alarms.ts";

/** The words of an alarm. */
type Told = Omit<Cause, "kind" | "heads" | "rest">;
/** What is wrong now. */
export type Found = {
  keys: readonly string[];
  /** The words for an alarm about these keys, which no open alarm has. */
  tell(news: readonly string[]): Told;
  /** Why an alarm about these keys ends, if they are not well. */
  why?(heads: readonly string[]): string | undefined;
};
/** `value`: of the organization's rule. `isOpen`: an alarm of this kind is open. `warnings`: of this server about itself. */
export type Asked = {
  db: Reader;
  org: Ruled;
  now: number;
  value: number;
  isOpen: boolean;
  warnings(): readonly Warning[];
};
export type Finder = (asked: Asked) => Promise<Found>;

export const dayMs = 86_400_000;

export const nothing: Found = {
  keys: [],
  tell: () => ({ title: "", text: "", isUrgent: false, since: 0 }),
};

/** The key of what an organization has once. */
const theOnly = "";
export const theOnlyCause = (told: Told): Found => ({ keys: [theOnly], tell: () => told });
