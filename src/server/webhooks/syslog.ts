// Sends one message to a syslog server over TLS: RFC 5424 in the frames of RFC 5425. The protocol has no answer, so a
// message counts as delivered when the server has closed the connection after it in order.

import { hash } from "node:crypto";
import { connect } from "node:tls";
import { AppError } from "../../base/errors.ts";
import { parseAddress } from "../../base/ip.ts";
import { brand } from "../../brand.ts";
import { isUrgentEvent, type EventText } from "./event-text.ts";
import { pinnedFingerprint } from "../../api/webhooks/webhooks.ts";
import type { Event } from "../../api/events.ts";

const defaultPort = 6514;
/** `local0` (RFC 5424, table 1). */
const facility = 16;
/** Without an end from the server, the message counts as delivered after this time. */
const closeMs = 2000;

/** RFC 5424, table 2: critical, warning or notice. */
function severityOf(event: Event): number {
  if (event.type !== "alarm.raised") return 5;
  return isUrgentEvent(event) ? 2 : 4;
}

/** `host`: of the control plane. `at`: the time of the event, ms. */
export function syslogFrame(
  event: Event,
  { text }: EventText,
  { host, deliveryId, at }: { host: string; deliveryId: number; at: number },
): Buffer {
  const priority = facility * 8 + severityOf(event);
  const header = `<${priority}>1 ${new Date(at).toISOString()} ${host} ${brand.id} - ${event.type.slice(0, 32)}`;
  // RFC 5424, 7.3.1: from 1 to 2,147,483,647.
  const sequenceId = (deliveryId % 2_147_483_647) + 1;
  // The BOM says that the text is UTF-8.
  const message = Buffer.from(
    `${header} [meta sequenceId="${sequenceId}"] \uFEFF${text.replaceAll("\n", " ")}`,
  );
  return Buffer.concat([Buffer.from(`${message.length} `), message]);
}

/**
 * `address`: the one that webhook-target.ts permits. A `fingerprint=sha256:HEX` in the URL replaces the check against the CAs of this
 * machine, as RFC 5425 (4.2.2) wants it. Throws failed, or the error of the connection.
 */
export async function sendSyslog(
  url: URL,
  address: string,
  frame: Buffer,
  signal: AbortSignal,
): Promise<void> {
  const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
  const pinned = pinnedFingerprint(url.searchParams);
  const socket = connect({
    host: address,
    port: Number(url.port || defaultPort),
    rejectUnauthorized: pinned === undefined,
    ...(parseAddress(host) === undefined ? { servername: host } : {}),
  });
  const abort = () => socket.destroy(signal.reason instanceof Error ? signal.reason : undefined);
  signal.addEventListener("abort", abort);
  try {
    await new Promise<void>((resolve, reject) => {
      socket.on("error", reject);
      socket.on("close", (hadError) => (hadError ? undefined : resolve()));
      socket.on("secureConnect", () => {
        // A server without a certificate has no `raw`, whatever the type says.
        const certificate = socket.getPeerCertificate().raw ?? Buffer.alloc(0);
        if (pinned !== undefined && hash("sha256", certificate, "hex") !== pinned) {
          reject(new AppError("failed", "The certificate of the syslog server has another fingerprint."));
          return;
        }
        // Read and drop what the server sends: else its end would not be seen.
        socket.resume();
        socket.end(frame, () => setTimeout(resolve, closeMs).unref());
      });
    });
  } finally {
    signal.removeEventListener("abort", abort);
    socket.destroy();
  }
}
