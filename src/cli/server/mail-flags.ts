// Flags of `serve` for its SMTP server.

import { given } from "../../base/given.ts";
import { AppError } from "../../base/errors.ts";
import { readTextIfThere } from "../../base/files.ts";
import type { MailOptions } from "../../server/options.ts";
import { valueFlag, type Values } from "../values.ts";

export const mailFlags = {
  "smtp-url": valueFlag(
    "URL",
    "Send invitations and links for new passwords by this SMTP server: smtps://USER@mail.example.org, or smtp://… with STARTTLS",
  ),
  "smtp-password": valueFlag("PASSWORD", "Password of USER", { secret: true }),
  "smtp-ca": valueFlag("FILE", "CAs of the SMTP server's certificate (PEM), for a private one"),
  "mail-from": valueFlag("ADDRESS", "Sender address of the e-mail"),
};

/** Undefined: no flag of e-mail is given. Throws usage for flags that do not go together. */
export async function readMail(values: Values): Promise<MailOptions | undefined> {
  const urlText = values.text("smtp-url");
  const from = values.text("mail-from");
  const caFile = values.text("smtp-ca");
  const password = await values.secret("smtp-password");
  if (urlText === undefined) {
    if (from === undefined && caFile === undefined && password === undefined) return undefined;
    throw new AppError("usage", "Give --smtp-url with the other flags for e-mail");
  }
  const url = URL.canParse(urlText) ? new URL(urlText) : undefined;
  if (url === undefined || !/^smtps?:$/.test(url.protocol) || url.hostname === "")
    throw new AppError("usage", "--smtp-url must be a URL such as smtps://mail.example.org");
  if (url.password !== "")
    throw new AppError("usage", "--smtp-url must not hold the password: use --smtp-password-file");
  if (from === undefined)
    throw new AppError("usage", "Give --mail-from, the sender address, with --smtp-url");
  const trust = caFile === undefined ? undefined : readTextIfThere(caFile);
  if (caFile !== undefined && trust === undefined)
    throw new AppError("usage", `--smtp-ca: ${caFile} is not there`);
  const user = decodeURIComponent(url.username);
  url.username = "";
  return {
    url: url.href,
    from,
    ...(user === "" ? {} : { user }),
    ...given({ password, trust }),
  };
}
