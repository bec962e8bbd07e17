// The deliveries of a webhook: read, kept current, and sent again.

import { apiPath } from "../../api/endpoint.ts";
import { webhooksApi, type ListedDelivery as Delivery } from "../../api/webhooks/webhooks.ts";
import { useEffect, useRef, useState } from "preact/hooks";
import { behindAll } from "../../api/values.ts";
import { ApiError, call, get } from "../contact/api.ts";
import { isUnderWay, withFound, outcomeOfAll, type Known } from "./deliveries.ts";
import { onEvent } from "../contact/live.ts";
import { refresh, useResource } from "../contact/resource.ts";
import { useAction } from "../ui/form.tsx";
import { tell } from "../ui/toast.tsx";

/** The deliveries that were read. `path`: the list's path. `again`: sends a delivery again. */
export type Log = Known & {
  path: string;
  again(delivery: Delivery): Promise<void>;
  error: ApiError | undefined;
};

/** Sends ended deliveries again, and waiting ones now, and reports the outcome. */
export function useSending(log: Log, wanted: readonly Delivery[]) {
  const [sent, setSent] = useState<readonly number[]>([]);
  const outcome = outcomeOfAll(log.items.filter(({ id }) => sent.includes(id)));
  useEffect(() => {
    if (outcome === undefined) return;
    setSent([]);
    tell(outcome.words, outcome.isFailure);
  }, [outcome?.words]);
  const { error, isRunning, run } = useAction(async () => {
    for (const delivery of wanted)
      await log.again(delivery).catch((failure: unknown) => {
        // The delivery is already under way.
        if (!(failure instanceof ApiError && failure.status === 409)) throw failure;
      });
    // A reading that began before `again` may still bring the former outcome, which must not be told: read once more first.
    await refresh(log.path);
    setSent(wanted.map(({ id }) => id));
  });
  return { error, run, isBusy: isRunning || sent.length > 0 };
}

const readAtOnce = 200;
const lookEveryMs = 3000;
/** Readings after an event of the audit log: its deliveries, which are no events, are made within a second. */
const looksAfterEvent = 2;

/** The newest deliveries, and older ones on demand (`older`). Read again soon while one is under way. */
export function useDeliveries(params: { slug: string; id: number }): Log & { older(): Promise<void> } {
  const [known, setKnown] = useState<Known>({ items: [], isAll: false });
  const { items } = known;
  const path = apiPath(webhooksApi.deliveries, params);
  const pathBefore = (id = behindAll) =>
    apiPath(webhooksApi.deliveries, params, { before: `${id}`, limit: `${readAtOnce}` });
  const join = (found: readonly Delivery[], before?: number) =>
    setKnown((now) => withFound(now, { found, isEnd: found.length < readAtOnce, before }));
  const older = async (id = items.at(-1)?.id) => join(await get(pathBefore(id)), id);
  // `isCalm`: not read after each event, since the timer below reads it then.
  const { data, error } = useResource(pathBefore(), { isCalm: true });
  useEffect(() => data && join(data), [data]);
  // How many more readings an event asks for.
  const looks = useRef(0);
  useEffect(() => onEvent(() => void (looks.current = looksAfterEvent)), []);
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.visibilityState === "hidden") return;
      const oldest = items.findLastIndex((each) => isUnderWay(each, Date.now()));
      if (oldest < 0 && looks.current === 0) return;
      if (oldest < 0) looks.current--;
      void refresh(path);
      // The oldest deliveries of a webhook are sent first, and may lie beyond those that `refresh` reads: then also read the
      // page that ends with the oldest one under way. A failure needs no sentence: the bar says that the control plane is away.
      if (oldest >= readAtOnce) older(items[oldest - readAtOnce]?.id).catch(() => undefined);
    }, lookEveryMs);
    return () => clearInterval(timer);
  }, [items]);
  const again = async (delivery: Delivery) => {
    const sent = await call(webhooksApi.sendAgain, { ...params, delivery: delivery.id }, {});
    setKnown((now) => withFound(now, { found: [{ ...delivery, ...sent }], before: delivery.id }));
  };
  return { ...known, path, error, older, again };
}
