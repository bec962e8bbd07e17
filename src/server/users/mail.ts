// Sends e-mail over the SMTP server that `serve` was given. The caller gets its failures: an invitation then has its
// link in the answer, as without an SMTP server.

import { AppError } from "../../base/errors.ts";
import { isLoopback } from "../../base/loopback.ts";
import type { Throttle } from "../http/throttle.ts";
import type { MailOptions } from "../options.ts";

/** `messageId`: the same when it is sent again. */
export type Message = { to: string; subject: string; text: string; messageId?: string };

/** The time limit of connecting, of the greeting, and of each pause of the server. */
const waitMs = 10_000;

/**
 * Sends a message that administrators of an organization cause, to a receiver that they choose. Throws throttled if the
 * organization sends too many, else as sendMail.
 */
export async function sendMailOf(
  slug: string,
  { mail, throttle }: { mail: MailOptions; throttle: Pick<Throttle, "check" | "count"> },
  message: Message,
): Promise<void> {
  throttle.check("mails", slug);
  throttle.count("mails", slug);
  await sendMail(mail, message);
}

/** Throws `failed` with the reason. */
export async function sendMail(options: MailOptions, { to, ...message }: Message): Promise<void> {
  const { url, from, user, password, trust } = options;
  const { protocol, hostname, port } = new URL(url);
  const { createTransport } = await import("nodemailer");
  const transport = createTransport({
    host: hostname.replace(/^\[(.*)\]$/, "$1"),
    ...(port === "" ? {} : { port: Number(port) }),
    secure: protocol === "smtps:",
    // A password or a link with a secret never crosses a network unencrypted.
    requireTLS: !isLoopback(hostname),
    ...(trust === undefined ? {} : { tls: { ca: trust } }),
    ...(user === undefined ? {} : { auth: { user, pass: password ?? "" } }),
    connectionTimeout: waitMs,
    greetingTimeout: waitMs,
    socketTimeout: waitMs,
    disableFileAccess: true,
    disableUrlAccess: true,
  });
  try {
    await transport.sendMail({
      // Objects: nodemailer would parse a text, which may then name several addresses.
      from: { name: "", address: from },
      to: { name: "", address: to },
      ...message,
      headers: { "Auto-Submitted": "auto-generated" },
    });
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new AppError("failed", `Cannot send e-mail by ${hostname}: ${reason}`, { cause: error });
  } finally {
    transport.close();
  }
}
