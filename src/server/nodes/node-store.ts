// The services that changes of nodes need. Admin commands have all of them except what comes from check-ins.

import type { Authorities } from "../certificates/authorities.ts";
import type { HeldPolls } from "../config/held-polls.ts";
import type { ServerOptions } from "../options.ts";
import type { Reports } from "./contact/reports.ts";
import type { VersionAges } from "./contact/version-ages.ts";

export type NodeStore = Pick<ServerOptions, "db" | "system" | "secretKey"> & {
  authorities: Authorities;
  changes: HeldPolls;
  reports?: Reports;
  ages?: VersionAges;
};
