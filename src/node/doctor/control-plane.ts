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
/** How old a Date header can be: it is cut to seconds, and servers make it once a second. */
const dateHeaderMs = 2000;

export async function examineControlPlane(
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
  // Positive: this clock is ahead.
  const offS = Math.round(differenceMs(time, askedAt, system.now()) / 1000);
  const evidence = `${base} answers; this clock is ${offS} s off`;
  if (Math.abs(offS) * 1000 >= clocksMayDifferMs) return fail(evidence, setClock);
  if (Math.abs(offS) >= clockWarnS) return warn(evidence, setClock);
  return (await unready(client)) ?? ok(evidence);
}

/** Whether the control plane is unreachable. `check`: of examineControlPlane. Other checks without an answer then have the same cause. */
export const isSilent = (check: Promise<unknown>): Promise<boolean> =>
  check.then(
    () => false,
    (error: unknown) => error instanceof AppError && error.code === "control_plane_unreachable",
  );

/**
 * By how much this clock is at least ahead of the other one, which showed `time` at a moment between `askedAt` and `answeredAt`;
 * negative: behind.
 */
function differenceMs(time: number, askedAt: number, answeredAt: number): number {
  if (time > answeredAt) return answeredAt - time;
  return askedAt - time > dateHeaderMs ? askedAt - time : 0;
}

/** A warning if the control plane is not ready for changes. Tunnels do not need it. */
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
