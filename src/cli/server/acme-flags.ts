// Flags of `serve --tls acme`.

import { given } from "../../base/given.ts";
import { AppError } from "../../base/errors.ts";
import { readTextIfThere } from "../../base/files.ts";
import type { AcmeTls } from "../../server/tls/listener-set.ts";
import type { AcmeOptions } from "../../server/options.ts";
import { switchFlag, valueFlag, type Flags, type Values } from "../values.ts";

const letsEncrypt = "https://acme-v02.api.letsencrypt.org/directory";

export const acmeFlags: Flags = {
  "acme-directory": valueFlag("URL", `Directory of the ACME server (default: ${letsEncrypt})`),
  "acme-email": valueFlag("ADDRESS", "Contact of the account at the ACME server"),
  "acme-listen": valueFlag(
    "HOST:PORT",
    "Listen address for HTTP-01, which comes to port 80 (default: port 80 beside --listen)",
  ),
  "acme-dns-hook": valueFlag(
    "PROGRAM",
    "Use DNS-01: PROGRAM is run with add or remove, the name and the value of a TXT record",
  ),
  "acme-profile": valueFlag(
    "NAME",
    "Profile of the certificate (default: shortlived for an IP address, where the server has it)",
  ),
  "acme-eab-kid": valueFlag("ID", "Key id of the external account, for ACME servers that require one"),
  "acme-eab-key": valueFlag("KEY", "MAC key of the external account (base64url)", { secret: true }),
  "acme-ca": valueFlag("FILE", "CAs of the ACME server's own certificate (PEM), for a private one"),
  "own-ca-listen": valueFlag(
    "HOST:PORT",
    "With --tls acme: where nodes that registered with --ca-fingerprint find this server's own CA " +
      "(default: the port that it had before; none: there are no such nodes)",
  ),
  "move-nodes": switchFlag(
    "With --tls acme: tell these nodes to trust the public certificate of --public-url from now on",
  ),
};

/** Throws usage for a flag that would have no effect. */
export function refuseAcmeFlags(values: Values): void {
  const names = Object.keys(acmeFlags).flatMap((name) => [name, `${name}-file`]);
  const useless = names.find((name) =>
    acmeFlags[name]?.type === "boolean" ? values.on(name) : values.text(name) !== undefined,
  );
  if (useless !== undefined) throw new AppError("usage", `--${useless} needs --tls acme`);
}

/** `hostname`: of --listen; HTTP-01 is answered there too, at port 80. Throws usage. */
export async function readAcmeTls(
  values: Values,
  { publicUrl, hostname }: { publicUrl: string | undefined; hostname: string },
): Promise<AcmeTls> {
  const { parseListen } = await import("../../server/http/edge.ts");
  const ownCa = values.text("own-ca-listen");
  const challenges = values.text("acme-listen");
  const acme = await readAcme(values, publicUrl);
  if (acme.dnsHook !== undefined && challenges !== undefined)
    throw new AppError("usage", "Give --acme-listen or --acme-dns-hook, not both");
  return {
    acme,
    ...(acme.dnsHook === undefined
      ? {
          challengeListen:
            challenges === undefined ? { hostname, port: 80 } : parseListen("--acme-listen", challenges),
        }
      : {}),
    ...(ownCa === undefined
      ? {}
      : { ownCaListen: ownCa === "none" ? ownCa : parseListen("--own-ca-listen", ownCa) }),
    movesNodes: values.on("move-nodes"),
  };
}

async function readAcme(values: Values, publicUrl: string | undefined): Promise<AcmeOptions> {
  const url = publicUrl === undefined ? undefined : new URL(publicUrl);
  if (url?.protocol !== "https:") {
    throw new AppError("usage", "--tls acme needs the name of the certificate", {
      hint: "Add --public-url https://control.example.org, a name or an IP address that the ACME server reaches.",
    });
  }
  const directoryUrl = values.text("acme-directory") ?? letsEncrypt;
  if (!URL.canParse(directoryUrl) || new URL(directoryUrl).protocol !== "https:")
    throw new AppError("usage", `--acme-directory must be an HTTPS URL, not "${directoryUrl}"`);
  const dnsHook = values.text("acme-dns-hook");
  if (dnsHook?.startsWith("/") === false)
    throw new AppError("usage", `--acme-dns-hook must be an absolute path, not "${dnsHook}"`);
  const trust = readTrust(values.text("acme-ca"));
  const kid = values.text("acme-eab-kid");
  const key = await values.secret("acme-eab-key");
  if ((kid === undefined) !== (key === undefined))
    throw new AppError("usage", "Give both --acme-eab-kid and --acme-eab-key-file, or neither");
  if (key !== undefined && !/^[A-Za-z0-9_-]{16,512}=*$/.test(key))
    throw new AppError("usage", "--acme-eab-key must be base64url, as the ACME server shows it");
  return {
    directoryUrl,
    name: url.hostname.replace(/^\[(.*)\]$/, "$1"),
    ...given({
      trust,
      email: values.text("acme-email"),
      profile: values.text("acme-profile"),
      dnsHook,
    }),
    ...(kid === undefined || key === undefined ? {} : { externalAccount: { kid, key } }),
  };
}

/** The CAs of --acme-ca (PEM). */
function readTrust(file: string | undefined): string | undefined {
  if (file === undefined) return undefined;
  const text = readTextIfThere(file);
  if (text?.includes("-----BEGIN CERTIFICATE-----") === true) return text;
  throw new AppError("usage", `--acme-ca: ${file} holds no certificate (PEM)`);
}
