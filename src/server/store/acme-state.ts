// The state that all replicas share about the certificate from ACME: account, order, challenges, certificate, and the
// result of the last attempt. Secrets are sealed like all others in the database.

import { hash } from "node:crypto";
import * as v from "valibot";
import { AccountKey } from "../../pki/acme-keys.ts";
import { openSecret, sealSecret, type SecretKeys } from "../../pki/secrets.ts";
import type { Database, Reader, Transaction } from "./database.ts";
import { readMeta, setMeta } from "./meta.ts";
import { meta } from "./tables/servers.ts";
import { foreignText } from "../../base/text.ts";

const Text = foreignText(2048);
const Pem = foreignText(512 * 1024);

/** `url`: the account's own, once the authority has given it. */
const Account = v.object({ key: AccountKey, url: v.optional(Text) });
export type Account = v.InferOutput<typeof Account>;

/** What a certificate is ordered for. With other settings, the server needs a new certificate. */
const Wish = v.object({ directoryUrl: Text, name: Text, profile: v.optional(Text) });
export type Wish = v.InferOutput<typeof Wish>;

/** The order that is under way. `url`: of the order at the authority. */
const OpenOrder = v.object({ wish: Wish, url: Text, privateKey: Pem });
export type OpenOrder = v.InferOutput<typeof OpenOrder>;

/** Times in ms. `renewalId`: of RFC 9773, if the authority knows it. */
const Certificate = v.object({
  wish: Wish,
  chain: Pem,
  privateKey: Pem,
  notBefore: v.number(),
  notAfter: v.number(),
  serial: Text,
  renewalId: v.optional(Text),
});
export type Certificate = v.InferOutput<typeof Certificate>;

/** The result of the last attempt, for metrics, alarms and the next one. Times in ms. */
const Status = v.object({
  /** The end of the present certificate. */
  notAfter: v.optional(v.number()),
  /** Failed attempts since the last success. */
  failures: v.optional(v.number(), 0),
  failedAt: v.optional(v.number()),
  /** The authority asked to wait until this time. */
  waitUntil: v.optional(v.number()),
  reason: v.optional(Text),
  /** When the authority wants the certificate renewed (RFC 9773), and when to ask it again. */
  suggestedAt: v.optional(v.number()),
  askAgainAt: v.optional(v.number()),
});
export type Status = v.InferOutput<typeof Status>;

const Challenges = v.record(foreignText(256), foreignText(512));

const orderKey = "acme_order";
const certificateKey = "acme_certificate";
const statusKey = "acme_status";
const challengesKey = "acme_challenges";

/** Each authority has an account of its own. */
function accountKey(directoryUrl: string): string {
  return `acme_account_${hash("sha256", directoryUrl, "hex").slice(0, 16)}`;
}

type Sealed = { reader: Reader; secretKey: SecretKeys };

async function readSealed<T>(
  { reader, secretKey }: Sealed,
  key: string,
  schema: v.GenericSchema<unknown, T>,
): Promise<T | undefined> {
  const sealed = await readMeta(reader, key);
  return sealed === undefined ? undefined : v.parse(schema, JSON.parse(openSecret(secretKey, sealed, key)));
}

function setSealed(tx: Transaction, secretKey: SecretKeys, key: string, value: object): Promise<number> {
  return setMeta(tx, key, sealSecret(secretKey, JSON.stringify(value), key));
}

/** The key-authorization of an open challenge, which any replica answers. Undefined for an unknown token. */
export async function challengeOf(db: Reader, token: string): Promise<string | undefined> {
  const stored = await readMeta(db, challengesKey);
  if (stored === undefined) return undefined;
  const challenges = new Map(Object.entries(v.parse(Challenges, JSON.parse(stored))));
  return challenges.get(token);
}

export async function readStatus(db: Reader): Promise<Status> {
  const stored = await readMeta(db, statusKey);
  return v.parse(Status, stored === undefined ? {} : JSON.parse(stored));
}

export function setStatus(tx: Transaction, status: Status): Promise<number> {
  return setMeta(tx, statusKey, JSON.stringify(status));
}

export function readCertificate(db: Reader, secretKey: SecretKeys): Promise<Certificate | undefined> {
  return readSealed({ reader: db, secretKey }, certificateKey, Certificate);
}

/** Changes with each new certificate; undefined before the first. */
export function certificateStamp(db: Reader): Promise<string | undefined> {
  return readMeta(db, certificateKey);
}

/** The state that an attempt reads and writes. `db` carries the fence of the lease. */
export function makeAcmeStore(db: Database, secretKey: SecretKeys) {
  const sealed: Sealed = { reader: db, secretKey };
  const set = (key: string, value: object) =>
    db.writeFor("rows", (tx) => setSealed(tx, secretKey, key, value));
  const deleteOrder = async (tx: Transaction): Promise<void> => {
    for (const key of [orderKey, challengesKey]) await meta.delete(tx, { key });
  };
  return {
    /** The account of this authority. A new key is stored before the authority sees it. */
    async account(directoryUrl: string, make: () => Promise<AccountKey>): Promise<Account> {
      const key = accountKey(directoryUrl);
      const known = await readSealed(sealed, key, Account);
      if (known !== undefined) return known;
      const fresh: Account = { key: await make() };
      await set(key, fresh);
      return fresh;
    },
    setAccount: (directoryUrl: string, account: Account) => set(accountKey(directoryUrl), account),
    order: () => readSealed(sealed, orderKey, OpenOrder),
    setOrder: (order: OpenOrder) => set(orderKey, order),
    dropOrder: () => db.writeFor("rows", deleteOrder),
    setChallenges: (challenges: Record<string, string>) =>
      db.writeFor("rows", (tx) => setMeta(tx, challengesKey, JSON.stringify(challenges))),
    /** The certificate takes the place of the order, in the transaction of `alongside`. */
    setCertificate: (certificate: Certificate, alongside: (tx: Transaction) => Promise<void>) =>
      db.write(async (tx) => {
        await setSealed(tx, secretKey, certificateKey, certificate);
        await deleteOrder(tx);
        await alongside(tx);
      }),
  };
}
export type AcmeStore = ReturnType<typeof makeAcmeStore>;
