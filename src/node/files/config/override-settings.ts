// What overrides.yml may set, with types and bounds. The engine replaces a value of the wrong type by its default without a word, and
// takes numbers with which it cannot carry a packet. Settings without an entry here are left to the engine's own test.

import * as v from "valibot";
import type { YamlValue } from "../../../base/yaml.ts";

/** readYaml has made it. */
const anyYaml = v.custom<YamlValue>(() => true);
/** Like the engine, accepts a number or a boolean as a text: `"4300"`, `yes`. */
const wholeNumber = (min: number, max: number) => {
  const allowed = `a whole number from ${min} to ${max}`;
  const text = v.pipe(v.string(), v.regex(/^\d{1,10}$/), v.transform(Number));
  return v.exactOptional(
    v.pipe(
      v.union([v.number(), text], allowed),
      v.integer(allowed),
      v.minValue(min, allowed),
      v.maxValue(max, allowed),
    ),
  );
};
const text = v.exactOptional(v.pipe(v.string("a text"), v.nonEmpty("a text")));
/** Like the engine, takes a key without a value (`routes:`), as in its example, for an empty list. */
const list = v.exactOptional(v.nullable(v.array(anyYaml, "a list")));
const truth = v.pipe(
  v.unknown(),
  v.transform(String),
  v.regex(/^(true|t|yes|y|1|false|f|no|n|0)$/i, "true or false"),
  v.transform((word) => /^[ty1]/i.test(word)),
);
const yesOrNo = v.exactOptional(truth);
/** Only 0 needs no unit (Go's time.ParseDuration). */
const duration = v.exactOptional(
  v.pipe(
    v.unknown(),
    v.transform(String),
    v.regex(/^(0|(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+)$/, "a duration such as 30s or 500ms"),
  ),
);
/** A section; without settings (`listen:`) it sets nothing. */
const section = <E extends v.ObjectEntries>(entries: E) =>
  v.exactOptional(
    v.pipe(
      v.nullable(v.objectWithRest(entries, anyYaml, "a map of settings")),
      v.transform((settings) => settings ?? {}),
    ),
  );

/** The sections of overrides.yml. They do not decide which peers this node trusts. */
export const Overrides = v.object({
  listen: section({
    host: text,
    port: wholeNumber(0, 65_535),
    batch: wholeNumber(1, 1024),
    read_buffer: wholeNumber(0, 1_073_741_824),
    write_buffer: wholeNumber(0, 1_073_741_824),
    so_mark: wholeNumber(0, 4_294_967_295),
    udp_offloads: yesOrNo,
  }),
  tun: section({
    // Nothing would come out of the overlay on this machine, and no probe could tell whether it works.
    disabled: v.exactOptional(
      v.pipe(truth, v.value(false, "false, as no packet would reach this node otherwise")),
    ),
    dev: text,
    // Every IPv4 host takes packets of 576 bytes (RFC 791); the engine has room for 9001.
    mtu: wholeNumber(576, 9000),
    tx_queue: wholeNumber(1, 100_000),
    drop_local_broadcast: yesOrNo,
    drop_multicast: yesOrNo,
    use_system_route_table: yesOrNo,
    use_offloads: yesOrNo,
    routes: list,
    unsafe_routes: list,
  }),
  logging: section({}),
  punchy: section({
    punch: yesOrNo,
    respond: yesOrNo,
    target_all_remotes: yesOrNo,
    delay: duration,
    respond_delay: duration,
  }),
  preferred_ranges: list,
  routines: wholeNumber(1, 64),
  stats: section({ interval: duration }),
  sshd: section({ enabled: yesOrNo }),
});
