// The texts in English. Each key is in texts.zh.js, too.

export default {
  "skip": "Skip to content",
  "navigation": "Pages",
  "group": "Group",
  "logout": "Log out",

  "login.title": "Log in",
  "login.name": "Account",
  "login.hint": "Leave it empty to log in with a token alone.",
  "login.password": "Password or token",
  "login.submit": "Log in",
  "login.wrong": "The account or the password is wrong.",

  "error.notGranted": "Not granted: {reason}",
  "error.noAnswer": "The broker does not answer: {reason}",
  "error.refused": "{reason} (error {code})",

  "page.overview": "Overview",

  "overview.height": "Height",
  "overview.transactions": "Transactions",
  "overview.rate": "Transactions a second",
  "overview.nodes": "Nodes",
  "overview.nodesNote": "active / all",
  "overview.topics": "Open topics",
  "overview.live": "Live subscriptions",
  "overview.webhooks": "Webhooks",
  "overview.oldest": "Oldest waiting event",
  "overview.nothingWaits": "none",
  "overview.rateChart": "Transactions a second",
  "overview.rateNow": "Transactions a second over the last minutes; now {rate}",
  "overview.noNodes": "This ledger has no nodes.",

  "node.id": "Node",
  "node.state": "State",
  "node.active": "active",
  "node.inactive": "not active",
  "node.kind": "Kind",
  "node.sealer": "replica",
  "node.observer": "observer",
  "node.height": "Height",
  "node.view": "View",
};
