// What finders have in common. A finder looks once a minute for one kind of cause that is not about reachability; evaluate.ts compares
// what it found with the open alarms.

import type { Reader } from "../store/database.ts";
import type { Warning } from "../../api/servers.ts";
import type { Ruled } from "./alarm-rules.ts";
import type { Cause } from "./open-alarms.ts";

/** Title, text and so on of an alarm. */
type Description = Omit<Cause, "kind" | "heads" | "rest">;
/** What is wrong now. */
export type Found = {
  /** One key for each thing that is wrong, such as the id of a node. An alarm stores those that it is about as its heads. */
  keys: readonly string[];
  /** For how long a key must be found before it is told; at once if absent. */
  afterMs?: number;
  /** Describes an alarm about these keys, of which no open alarm is about any. */
  describe(newKeys: readonly string[]): Description;
  /** Why an alarm about these keys ends, if not because all is well again. */
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
  describe: () => ({ title: "", text: "", isUrgent: false, since: 0 }),
};

/** The key of a cause that an organization can have only once. */
const theOnly = "";
export const theOnlyCause = (description: Description): Found => ({
  keys: [theOnly],
  describe: () => description,
});
