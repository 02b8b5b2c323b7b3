// 中文文本。每个键在 texts.en.js 中也有。

export default {
  "skip": "跳到正文",
  "navigation": "页面",
  "group": "群组",
  "logout": "退出登录",

  "login.title": "登录",
  "login.name": "账户",
  "login.hint": "仅用令牌登录时请留空。",
  "login.password": "密码或令牌",
  "login.submit": "登录",
  "login.wrong": "账户或密码不正确。",

  "error.notGranted": "没有权限：{reason}",
  "error.noAnswer": "服务没有应答：{reason}",
  "error.refused": "{reason}（错误码 {code}）",

  "page.overview": "概览",

  "overview.height": "区块高度",
  "overview.transactions": "交易总数",
  "overview.rate": "每秒交易数",
  "overview.nodes": "节点",
  "overview.nodesNote": "活跃 / 全部",
  "overview.topics": "已打开的主题",
  "overview.live": "在线订阅",
  "overview.webhooks": "Webhook",
  "overview.oldest": "等待最久的事件",
  "overview.nothingWaits": "无",
  "overview.rateChart": "每秒交易数",
  "overview.rateNow": "最近几分钟的每秒交易数；当前 {rate}",
  "overview.noNodes": "此账本没有节点。",

  "node.id": "节点",
  "node.state": "状态",
  "node.active": "活跃",
  "node.inactive": "不活跃",
  "node.kind": "类型",
  "node.sealer": "共识节点",
  "node.observer": "观察节点",
  "node.height": "区块高度",
  "node.view": "视图",
};
