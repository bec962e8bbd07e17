// What changing nodes needs: a server has all of it, an admin command everything but the reports of check-ins.

import type { Authorities } from "../certificates/authorities.ts";
import type { Changes } from "../config/changes.ts";
import type { ServerOptions } from "../options.ts";
import type { Reports } from "./reports.ts";

export type NodeStore = Pick<ServerOptions, "db" | "system" | "secretKey"> & {
  authorities: Authorities;
  changes: Changes;
  reports?: Reports;
};
