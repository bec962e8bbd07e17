// `agent serve --health`: asks the control plane that listens here whether it can answer, for the health checks of
// containers.

import { AppError, messageOf } from "../base/errors.ts";
import type { ListenAddress } from "./http/edge.ts";

/** How long the answer may take. */
const withinMs = 8000;

/** Where to call a server that listens on all addresses. */
const loopbackOf: Readonly<Record<string, string>> = { "0.0.0.0": "127.0.0.1", "::": "::1" };

/** Throws control_plane_unreachable. `listen`, `tls`: as the server has them; without `tls`, it speaks HTTP. */
export async function askHealth({ listen, tls }: { listen: ListenAddress; tls?: unknown }): Promise<void> {
  const { hostname, port } = listen;
  const host = loopbackOf[hostname] ?? hostname;
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
