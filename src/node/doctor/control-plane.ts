// Whether the control plane answers, and whether its clock agrees with this machine's.

import { request } from "../../api/request.ts";
import { healthApi } from "../../api/servers.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { clocksMayDifferMs } from "../../protocol/finding-kinds.ts";
import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import type { Client } from "../contact/requests/client.ts";
import { readCredentials, type Organization } from "../files/organizations.ts";
import { setClock } from "../health/findings.ts";
import { fail, ok, warn, type Finding } from "./check.ts";

const clockWarnS = 5;
const dateHeaderMs = 2000;

export async function controlPlane(
  organization: Pick<Organization, "directory">,
  { system, log }: { system: System; log: Log },
): Promise<Finding> {
  const { clientOf } = await import("../contact/requests/connection.ts");
  const { api_base: base } = readCredentials(organization.directory);
  // No token: time and readiness need none, and this node's token is valid for two endpoints only.
  const client = clientOf(organization.directory, undefined, system, log);
  const askedAt = system.now();
  const time = await client.serverTime();
  if (time === undefined)
    return warn(`${base} answers without a Date header`, "Check the proxy in front of it");
  const off = Math.round(differenceMs(time, askedAt, system.now()) / 1000);
  const evidence = `${base} answers; this clock is ${off} s off`;
  if (Math.abs(off) * 1000 >= clocksMayDifferMs) return fail(evidence, setClock);
  if (Math.abs(off) >= clockWarnS) return warn(evidence, setClock);
  return (await unready(client)) ?? ok(evidence);
}

/** Whether the control plane is unreachable. Then other checks that get no answer have the same cause. */
export const isSilent = (look: Promise<unknown>): Promise<boolean> =>
  look.then(
    () => false,
    (error: unknown) => error instanceof AppError && error.code === "control_plane_unreachable",
  );

/**
 * The smallest difference of the clocks. The other clock showed `time` at an unknown moment between `from` and `to`. A Date header
 * is cut to seconds, and servers make it once a second: it can be almost two seconds old.
 */
function differenceMs(time: number, from: number, to: number): number {
  if (time > to) return to - time;
  return from - time > dateHeaderMs ? from - time : 0;
}

/** Whether the control plane is ready, which changes need. Tunnels do not need it. */
async function unready(client: Client): Promise<Finding | undefined> {
  const { base } = client;
  try {
    const answer = await client.request(request(healthApi.ready, {}));
    const warnings = answer.body?.warnings ?? [];
    if (warnings.length === 0) return undefined;
    return warn(`${base} answers, and warns: ${warnings.join(", ")}`, tellOperator);
  } catch (error) {
    // A proxy may block the readiness endpoint.
    if (!(error instanceof AppError) || error.code !== "storage_unavailable") return undefined;
    return warn(`${base} answers, but is not ready: ${error.message}`, tellOperator);
  }
}

const tellOperator = `Tell its administrators: \`${brand.executable} admin server list\` says what to do`;
