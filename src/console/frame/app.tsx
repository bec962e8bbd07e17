// The frame of every page: navigation, the bar that says when the control plane is away, and the page itself. Pages are
// loaded when they are first shown.

import { useEffect, useState } from "preact/hooks";
import { awaySince, isSignedOut } from "../contact/api.ts";
import { useHeadingFocus } from "./heading-focus.ts";
import { isFactorMissing, isOver, me, organizations, currentSlug, start, startError } from "../contact/me.ts";
import { Navigation } from "./navigation.tsx";
import {
  findPage,
  loadedView,
  loadView,
  opened,
  otherPages,
  paletteProps,
  staffPages,
  type Page as PageEntry,
  type View,
} from "../pages.ts";
import { lists } from "../nodes/node-list.ts";
import { entries } from "../contact/resource.ts";
import { go, pathOf, segments, shownName } from "./router.ts";
import { StepUp } from "./step-up.tsx";
import { exact, now } from "../words/times.ts";
import { Icon, Sign } from "../ui/icon.tsx";
import { Page, Panel } from "../ui/page.tsx";
import { Empty, Loading } from "../ui/parts.tsx";
import { tell, Told } from "../ui/toast.tsx";

/** The page that the address names, within the frame; the sign-in form over it without a session. */
export function App() {
  // The browser loads another page, for another user or none.
  if (isOver.value) return null;
  if (me.value === undefined) {
    if (isSignedOut.value) return <SignedOut />;
    const error = startError.value;
    return (
      <main>
        <Loading error={error} retry={start} />
      </main>
    );
  }
  return (
    <>
      <a class="unseen skip" href="#content">
        To the content
      </a>
      <Navigation />
      <div class={isSignedOut.value ? "frame concealed" : "frame"}>
        <Away />
        <main id="content" tabindex={-1}>
          <Content />
        </main>
      </div>
      <Palette />
      <StepUp />
      <Told />
      <SignedOut />
    </>
  );
}

/**
 * The shown data is outdated: the control plane does not answer, or only this page's requests fail. If the session
 * ended, a form says so.
 */
function Away() {
  // Draws this again every ten seconds: `entries` and `lists` are no signals.
  void now.value;
  const old = [...entries.values(), ...lists.values()]
    .map(({ users, state }) => (users > 0 ? state.value : undefined))
    // Status 0 is no answer (`awaySince` tells it), 401 the end of the session.
    .find((each) => each?.readAt !== undefined && (each.error?.status ?? 0) > 401);
  const since = awaySince.value;
  const text =
    since === undefined
      ? old && `As of ${exact(old.readAt ?? 0)}; cannot be read now: ${old.error?.message}`
      : `The control plane does not answer since ${exact(since)}. Changes are not saved.`;
  return (
    <div role="status" class={text && "outage"}>
      {text === undefined ? null : <Sign name="warn" />}
      <bdi>{text}</bdi>
    </div>
  );
}

const laterAfterMs = 1000;

/** A file that is loaded a moment after the first page, or when it is needed. `fail`: it was needed, and did not arrive. */
function useLater<M extends object>(load: () => Promise<M>, isNeeded: boolean, fail: () => void) {
  const [found, setFound] = useState<M>();
  useEffect(() => {
    const begin = () => void load().then(setFound, () => isNeeded && fail());
    if (isNeeded) return begin();
    const timer = setTimeout(begin, laterAfterMs);
    return () => clearTimeout(timer);
  }, [isNeeded]);
  return found;
}

function Palette() {
  const kind = opened.value;
  const part = useLater(
    () => import("./palette.tsx"),
    kind !== undefined,
    // When it is opened again, it is loaded again.
    () => {
      opened.value = undefined;
      tell(notLoaded, true);
    },
  );
  return part === undefined || kind === undefined ? null : <part.Palette {...paletteProps(kind)} />;
}

/** The form that signs in. It is there before a session ends, as the control plane may have been updated since. */
function SignedOut() {
  const [hasFailed, setFailed] = useState(false);
  const part = useLater(
    () => import("./signed-out-pages.ts"),
    isSignedOut.value,
    () => setFailed(true),
  );
  if (!isSignedOut.value) return null;
  if (part !== undefined) return <part.SignIn />;
  return hasFailed ? <NotLoaded /> : <Loading />;
}

function Content() {
  const [first] = segments.value;
  if (isFactorMissing.value) return <Lazy key="factor" page={otherPages.account} rest={[]} />;
  if (first === undefined) return <Start />;
  if (currentSlug.value !== undefined && !organizations.value.some((each) => each.slug === currentSlug.value))
    return <Empty text="There is no such organization, or you are not a member of it." />;
  const found = findPage(segments.value);
  const isForStaff = found !== undefined && Object.values(staffPages).includes(found.page);
  if (found === undefined || (isForStaff && me.value?.is_staff !== true))
    return (
      <Page title="No such page">
        <Empty text="Nothing is at this address.">
          <a class="button" href={pathOf()}>
            Overview
          </a>
        </Empty>
      </Page>
    );
  return <Lazy key={found.key} page={found.page} rest={found.rest} />;
}

/** /console/ leads to the only organization; with several, it lists them. */
function Start() {
  const all = organizations.value;
  const only = all.length === 1 ? all[0] : undefined;
  useEffect(() => {
    if (only !== undefined) go(pathOf(only.slug), { replace: true });
  }, [only]);
  // Undefined: no page is shown here, as the address changes at once.
  useHeadingFocus(only === undefined ? "" : undefined);
  if (only !== undefined) return null;
  if (all.length === 0 && me.value?.is_staff === true)
    return (
      <Empty text="There is no organization yet. An organization is one overlay network.">
        <a class="button primary" href={pathOf("-", "organizations")}>
          Organizations
        </a>
      </Empty>
    );
  if (all.length === 0)
    return <Empty text="You are not a member of an organization yet. An owner can invite you." />;
  return (
    <Page title="Organizations">
      <Panel>
        <ul class="lines recent">
          {all.map((each) => (
            <li key={each.slug}>
              <Icon name="organizations" />
              <a class="name" href={pathOf(each.slug)}>
                <bdi>{each.name}</bdi>
              </a>
              <span class="quiet">{each.slug}</span>
            </li>
          ))}
        </ul>
      </Panel>
    </Page>
  );
}

type LazyProps = { page: PageEntry; rest: readonly string[] };

function Lazy({ page, rest }: LazyProps) {
  const [Shown, setView] = useState<View | undefined>(() => loadedView(page));
  useHeadingFocus(segments.value.join("/"));
  useEffect(() => {
    document.title = [shownName.value, page.title, currentSlug.value].filter(Boolean).join(" · ");
    loadView(page).then(
      (loaded) => setView(() => loaded),
      () => setView(() => NotLoaded),
    );
  }, [page, shownName.value]);
  return Shown === undefined ? <Loading /> : <Shown rest={rest} />;
}

const notLoaded = "This page could not be loaded: perhaps the control plane was updated.";

/** The page's file did not load. An updated control plane has files with other names. */
function NotLoaded() {
  return (
    <Empty text={notLoaded}>
      <button type="button" class="primary" onClick={() => location.reload()}>
        Load it again
      </button>
    </Empty>
  );
}
