//! kube-informers
