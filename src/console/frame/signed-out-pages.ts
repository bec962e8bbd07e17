// Pages before anybody is signed in. One file of both, which other pages load only later.

export { Links } from "../pages/links.tsx";
export { SignIn } from "./sign-in.tsx";
