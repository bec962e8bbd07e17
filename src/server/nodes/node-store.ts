// The services that changes of nodes need. Admin commands have all of them except what comes from check-ins.

import type { Authorities } from "../certificates/authorities.ts";
import type { HeldPolls } from "../config/held-polls.ts";
import type { ServerOptions } from "../options.ts";
import type { Reports } from "./contact/reports.ts";
import type { VersionAges } from "./contact/version-ages.ts";

export type NodeStore = Pick<ServerOptions, "db" | "system" | "secretKey"> & {
  authorities: Authorities;
  /** The polls that wait for news: a change wakes them. */
  changes: HeldPolls;
  /** The last reports of nodes, which are stored within a second. */
  reports?: Reports;
  /** When organizations got their configuration versions. */
  ages?: VersionAges;
};
