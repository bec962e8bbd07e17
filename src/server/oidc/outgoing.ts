// Requests to providers of identities. They pass the same guard as webhooks, follow no redirect, and read at most 1 MiB.

import { AppError } from "../../errors.ts";
import type { ServerOptions } from "../options.ts";
import { resolvedTo } from "../webhooks/webhook-target.ts";

export type Outgoing = Pick<ServerOptions, "system" | "webhookNetworks">;
type Init = {
  method: string;
  headers: Record<string, string>;
  body?: string | Uint8Array<ArrayBuffer> | URLSearchParams | ReadableStream | null | undefined;
};

const requestMs = 10_000;
const maxBytes = 1024 * 1024;
const noBody: readonly number[] = [204, 205, 304];

/** A `fetch` for one provider. `trust`: PEM of CAs in place of those of the system. Throws provider_unavailable. */
export function fetchFrom({ system, webhookNetworks }: Outgoing, trust: string | null) {
  return async (text: string, { method, headers, body }: Init): Promise<Response> => {
    const url = new URL(text);
    try {
      const { href, serverName } = await resolvedTo(url, {
        system,
        ...(webhookNetworks === undefined ? {} : { webhookNetworks }),
      });
      const response = await system.fetch(href, {
        method,
        headers: { ...headers, Host: url.host },
        redirect: "manual",
        keepalive: false,
        signal: AbortSignal.timeout(requestMs),
        ...(body instanceof URLSearchParams || typeof body === "string" ? { body: body.toString() } : {}),
        tls: {
          ...(serverName === undefined ? {} : { serverName }),
          ...(trust === null ? {} : { ca: trust }),
        },
      });
      const { status } = response;
      if (status >= 500) throw new Error(`it answered ${status}`);
      const content = await readLimited(response);
      return new Response(noBody.includes(status) ? null : content, { status, headers: response.headers });
    } catch (error) {
      throw new AppError("provider_unavailable", `Cannot reach ${url.host}, the provider of identities.`, {
        cause: error,
        hint: "Try again later, or sign in another way.",
      });
    }
  };
}

async function readLimited(response: Response): Promise<Uint8Array<ArrayBuffer>> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of response.body ?? []) {
    size += part.byteLength;
    if (size > maxBytes) throw new Error(`its answer has more than ${maxBytes} bytes`);
    parts.push(part);
  }
  return new Uint8Array(Buffer.concat(parts));
}
