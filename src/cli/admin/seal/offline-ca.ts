// `agent admin seal ca`: makes the offline CA of an organization on the machine of a signer.

import { request } from "../../../api/request.ts";
import { sealsApi } from "../../../api/certificates/seals.ts";
import { brand } from "../../../brand.ts";
import type { Context, Implementation } from "../../command.ts";
import { orgArg } from "../../server/server-flags.ts";
import { write } from "../api.ts";
import { leastPassphrase, passphraseFlag, readPassphrase, requireLong } from "../passphrase.ts";
import { wordArg } from "../../values.ts";

export const makeCa: Implementation = {
  notes: `Writes the key to FILE and the certificate to FILE.crt, and sends the certificate: all nodes trust this CA from then on. The key is
encrypted with a passphrase of at least ${leastPassphrase} characters, in Nebula's format, and never leaves this machine: run the command on a machine
of a signer, not on the control plane. Only an owner can send the certificate. If both files are there already, it sends the certificate again.`,
  args: {
    ...orgArg,
    FILE: wordArg("File of the encrypted key"),
    passphrase: passphraseFlag,
  },
  examples: [`${brand.executable} admin seal ca acme acme-offline.key`],
  async run(context) {
    const { words, output, settings } = context;
    const [slug = "", file = ""] = words;
    const { readTextIfThere } = await import("../../../base/files.ts");
    // Undefined unless both files are there.
    const earlier = readTextIfThere(file) === undefined ? undefined : readTextIfThere(`${file}.crt`);
    const effect = `make an offline CA in ${file}, and let the nodes of ${slug} trust it`;
    const done = await write(context, async () => {
      const certificate = settings.dryRun ? "" : (earlier ?? (await makeFiles(context, slug, file)));
      return { ...request(sealsApi.addAuthority, { slug }, { certificate }), effect };
    });
    if (done === undefined) return;
    output.result(
      { ...done, key_file: file, certificate_file: `${file}.crt` },
      `The nodes of ${slug} trust the offline CA ${done.fingerprint}\n`,
    );
    output.say(
      `Keep ${file} and its passphrase: copy both to a second place. Without them you have to make another CA.`,
    );
  },
};

/** Makes the CA and writes both files. Returns the certificate. */
async function makeFiles(context: Context, slug: string, file: string): Promise<string> {
  const { requireFreePlace, writeFileAtomic } = await import("../../../base/files.ts");
  for (const each of [file, `${file}.crt`]) requireFreePlace(each);
  const passphrase = await readPassphrase(context, { isNew: true });
  requireLong(passphrase);
  const { makeOfflineCa } = await import("../../../server/config/offline-key.ts");
  const { key, certificate } = await makeOfflineCa(slug, passphrase, context.system.now());
  writeFileAtomic(file, key, 0o600);
  writeFileAtomic(`${file}.crt`, certificate, 0o644);
  return certificate;
}
