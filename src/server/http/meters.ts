// Counters of this process for the metrics. They never read the database, and each event costs an addition.

export type Meters = {
  /** `route`: the operationId. `ms`: from the request's arrival to the answer. */
  request(route: string, method: string, status: number, ms: number): void;
  login(result: "ok" | "failed"): void;
  /** A node's configuration was rendered. */
  rendered(): void;
  /** An archive of events was written, or could not be. */
  archived(result: "ok" | "failed"): void;
  /** A TLS certificate for this server was ordered by ACME. */
  certificate(result: "ok" | "failed"): void;
  /** A node that pins the server's own CA checked in, although there is a public certificate. */
  ownCaCheckin(): void;
  samples(): Sample[];
  /** Since the start of this process. */
  totals(): Totals;
};

/** `counts`: answers by the time that they took at most; held check-ins are not among them. */
export type Totals = {
  requests: number;
  errors: number;
  checkins: number;
  counts: readonly { upToMs: number; count: number }[];
};

/** One metric with its samples; `name` without the product's prefix. */
export type Sample = {
  name: string;
  type: "counter" | "gauge" | "histogram";
  help: string;
  values: readonly { suffix?: string; labels?: Record<string, string>; value: number }[];
};

/**
 * The requests of one route. `counts`: of each of `bounds`, the answers that took at most so long, and longer than the bound
 * before. `sum`: the time of all, in seconds. `answers`: their number by method, then by status.
 */
type Meter = { counts: number[]; count: number; sum: number; answers: Map<string, Map<number, number>> };

/** Upper bounds in seconds. */
const bounds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10];
/** In totals, `upToMs` of the requests beyond the last bound. */
const longestMs = 60_000;
/** Check-ins, by the operationId of their route. */
const checkinRoute = "nodes_checkin";
/** The name that request-log.ts gives to check-ins that asked to wait for news. */
const heldRoute = `${checkinRoute}_held`;

export function makeMeters(): Meters {
  const byRoute = new Map<string, Meter>();
  const logins = { ok: 0, failed: 0 };
  const archives = { ok: 0, failed: 0 };
  const certificates = { ok: 0, failed: 0 };
  let renderings = 0;
  let ownCaCheckins = 0;

  return {
    request(route, method, status, ms) {
      const meter = byRoute.getOrInsertComputed(route, () => ({
        counts: bounds.map(() => 0),
        count: 0,
        sum: 0,
        answers: new Map(),
      }));
      const seconds = ms / 1000;
      let at = 0;
      while (seconds > (bounds[at] ?? Infinity)) at++;
      if (at < bounds.length) meter.counts[at] = (meter.counts[at] ?? 0) + 1;
      meter.count++;
      meter.sum += seconds;
      const byStatus = meter.answers.getOrInsertComputed(method, () => new Map());
      byStatus.set(status, (byStatus.get(status) ?? 0) + 1);
    },
    login(result) {
      logins[result]++;
    },
    rendered() {
      renderings++;
    },
    ownCaCheckin() {
      ownCaCheckins++;
    },
    archived(result) {
      archives[result]++;
    },
    certificate(result) {
      certificates[result]++;
    },
    samples: () => [
      requestSeconds(byRoute),
      requestsTotal(byRoute),
      byResult("logins_total", "Sign-ins with a password", logins),
      byResult("event_archives_total", "Archives of events that were written, or that failed", archives),
      byResult(
        "acme_orders_total",
        "TLS certificates that were ordered by ACME, or that failed",
        certificates,
      ),
      counter("configurations_rendered_total", "Rendered node configurations", renderings),
      counter(
        "own_ca_checkins_total",
        "Check-ins of nodes that trust the server's own CA, while there is a public certificate.",
        ownCaCheckins,
      ),
    ],
    totals: () => totalsOf(byRoute),
  };
}

function totalsOf(byRoute: ReadonlyMap<string, Meter>): Totals {
  const all = [...byRoute.values()];
  const answered = [...byRoute].flatMap(([route, meter]) => (route === heldRoute ? [] : [meter]));
  const errors = all.flatMap(({ answers }) =>
    [...answers.values()].flatMap((byStatus) =>
      [...byStatus].map(([status, count]) => (status >= 500 ? count : 0)),
    ),
  );
  const sum = (numbers: readonly number[]) => numbers.reduce((one, other) => one + other, 0);
  const counts = bounds.map((bound, at) => ({
    upToMs: bound * 1000,
    count: sum(answered.map((meter) => meter.counts[at] ?? 0)),
  }));
  const longer = sum(answered.map(({ count }) => count)) - sum(counts.map(({ count }) => count));
  return {
    requests: sum(all.map(({ count }) => count)),
    errors: sum(errors),
    checkins: sum([checkinRoute, heldRoute].map((route) => byRoute.get(route)?.count ?? 0)),
    counts: [...counts, { upToMs: longestMs, count: longer }],
  };
}

function requestSeconds(byRoute: ReadonlyMap<string, Meter>): Sample {
  const values = [...byRoute].flatMap(([route, { counts, count, sum }]) => {
    let below = 0;
    const buckets = counts.map((each, at) => {
      below += each;
      return { suffix: "_bucket", labels: { route, le: String(bounds[at]) }, value: below };
    });
    return [
      ...buckets,
      { suffix: "_bucket", labels: { route, le: "+Inf" }, value: count },
      { suffix: "_sum", labels: { route }, value: sum },
      { suffix: "_count", labels: { route }, value: count },
    ];
  });
  return {
    name: "http_request_seconds",
    type: "histogram",
    help: "Time to the answer by operation; held check-ins are counted separately",
    values,
  };
}

function requestsTotal(byRoute: ReadonlyMap<string, Meter>): Sample {
  const values = [...byRoute].flatMap(([route, { answers }]) =>
    [...answers].flatMap(([method, byStatus]) =>
      [...byStatus].map(([status, value]) => ({ labels: { method, route, status: String(status) }, value })),
    ),
  );
  return { name: "http_requests_total", type: "counter", help: "Requests by operation and status", values };
}

function byResult(name: string, help: string, counts: Record<"ok" | "failed", number>): Sample {
  const values = Object.entries(counts).map(([result, value]) => ({ labels: { result }, value }));
  return { name, type: "counter", help, values };
}

function counter(name: string, help: string, value: number): Sample {
  return { name, type: "counter", help, values: [{ value }] };
}
