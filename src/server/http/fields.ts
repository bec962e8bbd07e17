// Schemas of fields that several routes share.

import * as v from "valibot";
import { parseDuration } from "../../duration.ts";
import { foreignText } from "../../text.ts";

/** A duration such as 24h, at most 366 days. The output is in seconds. */
export const ExpiresIn = v.pipe(
  foreignText(32),
  v.check((text) => parseDuration(text) !== undefined, "Enter a duration such as 90s, 15m, 24h or 7d."),
  v.transform((text) => parseDuration(text) ?? 0),
  v.minValue(1, "At least 1s."),
  v.maxValue(366 * 86_400, "At most 366d."),
);
