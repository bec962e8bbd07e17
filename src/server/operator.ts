// The HTTP application for `agent admin` on the data directory: in this process, without a listener, and with the rights of
// the operator. A running server learns of changes through the database.

import { defer } from "../base/defer.ts";
import { given } from "../base/given.ts";
import { parseNetworks } from "../base/ip.ts";
import type { Log } from "../base/log.ts";
import type { System } from "../base/system.ts";
import { makeAnswers } from "./app.ts";
import { withAdmin } from "./admin.ts";
import { operator } from "./audit/record.ts";
import type { Edge } from "./http/exchange.ts";
import { makeServices } from "./services.ts";
import type { DataOptions } from "./store/data-directory.ts";

/** Only `serve` knows which networks webhooks may reach. It checks the address again before each delivery. */
const anyNetwork = parseNetworks(["0.0.0.0/0", "::/0"]);

/** Required, and never used: no session begins here. */
const lifetimes = { accessLifetimeS: 900, refreshLifetimeS: 900 };

/** Opens the data, and runs the work with a `fetch` that the application answers. */
export async function asOperator<T>(
  options: DataOptions & { publicUrl?: string },
  { system, log }: { system: System; log: Log },
  work: (fetch: System["fetch"], publicUrl: string) => Promise<T>,
): Promise<T> {
  return withAdmin(options, system, async ({ db, secretKey, clock, publicUrl, caFingerprint }) => {
    const services = await makeServices({
      db,
      system,
      clock,
      // A server logs its work as `info`. A command shows that with --verbose only.
      log: { ...log, info: log.debug },
      secretKey,
      publicUrl,
      ...given({ caFingerprint }),
      dataDirectory: options.dataDirectory,
      webhookNetworks: anyNetwork,
      ...lifetimes,
    });
    const edge: Edge = { addressOf: () => "", operator: { kind: "operator", uid: operator.id } };
    const answers = makeAnswers(services);
    using _ = defer(() => services.changes.close());
    return await work(async (url, init) => answers.fetch(new Request(url, init), edge), publicUrl);
  });
}
