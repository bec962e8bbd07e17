// `agent serve --health`: asks the control plane that listens here whether it can answer, for the health checks of
// containers.

import { AppError, messageOf } from "../base/errors.ts";
import type { ListenAddress } from "./http/edge.ts";

const withinMs = 8000;

/** The address at which a server that listens on all of them is called. */
const callable: Readonly<Record<string, string>> = { "0.0.0.0": "127.0.0.1", "::": "::1" };

/** Throws control_plane_unreachable. `listen`: as the server has it. */
export async function askHealth({ listen, tls }: { listen: ListenAddress; tls?: unknown }): Promise<void> {
  const { hostname, port } = listen;
  const host = callable[hostname] ?? hostname;
  const address = `${host.includes(":") ? `[${host}]` : host}:${port}`;
  let reason: string;
  try {
    // Accept any certificate: the connection stays on this machine and carries no secret, and the certificate is for
    // another name.
    const { status } = await fetch(`${tls === undefined ? "http" : "https"}://${address}/readyz`, {
      signal: AbortSignal.timeout(withinMs),
      tls: { rejectUnauthorized: false },
      redirect: "error",
    });
    if (status === 200) return;
    reason = `it answers ${status}`;
  } catch (error) {
    reason = messageOf(error);
  }
  throw new AppError("control_plane_unreachable", `The control plane at ${address} is not ready: ${reason}`, {
    hint: "Its log says why.",
  });
}
