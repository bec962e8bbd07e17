// Whether the control plane answers, and whether its clock agrees with this machine's.

import { clocksMayDifferMs } from "../../finding-kinds.ts";
import type { Log } from "../../log.ts";
import type { System } from "../../system.ts";
import { readCredentials, type Organization } from "../files/organizations.ts";
import { setClock } from "../health/findings.ts";
import { fail, ok, warn, type Finding } from "./check.ts";

const clockWarnS = 5;

export async function controlPlane(
  organization: Pick<Organization, "directory">,
  { system, log }: { system: System; log: Log },
): Promise<Finding> {
  const { clientOf } = await import("../contact/connection.ts");
  const { api_base: base } = readCredentials(organization.directory);
  // The time needs no token, and this node's token is valid only for two endpoints.
  const time = await clientOf(organization.directory, undefined, system, log).serverTime();
  if (time === undefined)
    return warn(`${base} answers without a Date header`, "Check the proxy in front of it");
  const off = Math.round((system.now() - time) / 1000);
  const evidence = `${base} answers; this clock is ${off} s off`;
  if (Math.abs(off) * 1000 >= clocksMayDifferMs) return fail(evidence, setClock);
  return Math.abs(off) >= clockWarnS ? warn(evidence, setClock) : ok(evidence);
}
