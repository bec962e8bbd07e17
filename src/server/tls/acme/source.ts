// The certificate from ACME for the listener. Each replica looks for a new one in the database; any replica may have
// ordered it.

import { messageOf } from "../../../base/errors.ts";
import type { Log } from "../../../base/log.ts";
import type { SecretKeys } from "../../../pki/secrets.ts";
import type { Database } from "../../store/database.ts";
import type { TlsPair, TlsSource } from "../listeners.ts";
import { certificateStamp, readCertificate } from "../../store/acme-state.ts";

/** `meanwhile`: serves until there is a certificate. */
export async function openAcmeSource(
  { db, secretKey, log }: { db: Database; secretKey: SecretKeys; log: Log },
  meanwhile: TlsSource,
): Promise<TlsSource> {
  let current: { stamp: string; pair: TlsPair } | undefined;
  const readIfNew = async () => {
    const stamp = await certificateStamp(db);
    if (stamp === undefined || stamp === current?.stamp) return;
    const certificate = await readCertificate(db, secretKey);
    if (certificate === undefined) return;
    current = { stamp, pair: { cert: certificate.chain, key: certificate.privateKey } };
  };
  await readIfNew();
  let looking: Promise<void> | undefined;
  let hasWarned = false;
  const lookAgain = () =>
    readIfNew()
      .then(
        () => void (hasWarned = false),
        (error: unknown) => {
          if (!hasWarned) log.warn("cannot look for a new TLS certificate", { reason: messageOf(error) });
          hasWarned = true;
        },
      )
      .finally(() => (looking = undefined));
  return {
    read: () => current?.pair ?? meanwhile.read(),
    // Called regularly (listeners.ts): the next call has the stamp of what this look finds.
    stamp() {
      looking ??= lookAgain();
      return current?.stamp ?? meanwhile.stamp();
    },
    // Browsers do not know the CA of `meanwhile`, so they must not insist on TLS while it serves (listeners.ts).
    get isStrict() {
      return current !== undefined;
    },
  };
}
