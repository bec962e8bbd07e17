// A hand-made Nebula network in a directory, as `agent admin import` finds it.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeHostKey, readHostPublicKey } from "../../src/pki/keys.ts";
import { encodePem } from "../../src/pki/bundle.ts";
import { makeCa, signCertificate, type HostTemplate } from "../../src/pki/nebula.ts";

export const day = 86_400;

export function handMade(directory: () => string, nowS: () => number) {
  const life = () => ({ notBefore: nowS() - 30 * day, notAfter: nowS() + 300 * day });

  function file(name: string, text: string): void {
    const path = join(directory(), name);
    mkdirSync(join(path, ".."), { recursive: true });
    writeFileSync(path, text);
  }

  /** Creates ca.crt and ca.key, and returns functions that sign hosts with them. */
  function makeNetwork(version: 1 | 2 = 1, name = "ca") {
    const ca = makeCa({ version, name: "By hand", ...life() });
    file(`${name}.crt`, encodePem(ca.certificate));
    file(`${name}.key`, ca.privateKeyPem);
    const sign = (given: Partial<HostTemplate> & { name: string; networks: string[] }) =>
      signCertificate(
        {
          version: 1,
          unsafeNetworks: [],
          groups: [],
          notBefore: nowS() - day,
          notAfter: nowS() + 200 * day,
          publicKey: readHostPublicKey(makeHostKey().publicPem),
          ...given,
        },
        ca,
      );
    const host = (path: string, given: Parameters<typeof sign>[0]) => {
      const certificate = sign(given);
      file(path, encodePem(certificate));
      return certificate;
    };
    return { ca, sign, host };
  }

  return { life, file, makeNetwork };
}
